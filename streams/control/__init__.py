"""The controller of each cell: closed windows in, targets, pool snapshots and state snapshots out."""
