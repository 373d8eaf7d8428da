"""The chance of a run: CHAOS_SEED repeats one, else it is drawn anew. It is in the name of each case."""

import os
import secrets

FIRST_SEED = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(1_000_000))
