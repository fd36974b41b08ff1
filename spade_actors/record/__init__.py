"""The run folder, readable without any process: where things are, the summary, the audit. Imports neither trio nor torch."""
