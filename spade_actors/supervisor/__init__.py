"""What `spade-actors up` is: starts this node's processes, restarts them, drains them, keeps the run's metrics.

Pure: `plan`, `restarts`, `drain`, `view`. Around them: `children` (processes), `folder` (the run folder), `actor` (the loop).
"""
