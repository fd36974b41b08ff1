"""`bootstrap OUT`: the recipe's own command (`spade_actors.micro.bootstrap`), whose options are declared there."""

import click

from spade_actors.cli.errors import Failed


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    short_help="Train the micro profile's model and tokenizer from scratch.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bootstrap(arguments: tuple[str, ...]) -> None:
    """Train the micro profile's model and tokenizer from scratch into a folder, with a progress bar."""
    try:
        from spade_actors.micro.bootstrap import main
    except ModuleNotFoundError as error:
        raise Failed(f"bootstrap needs {error.name}; install it with `pip install 'spade-actors[learner]'`") from None
    main.main(args=list(arguments), prog_name="spade-actors bootstrap", standalone_mode=False)
