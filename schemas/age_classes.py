"""Classes of the age of an offer: fixed, so that figures of any window and any cell may be added up."""

# Where each class begins, in seconds; the last one is open. Spaced by factors of two to three: what is known of an
# offer's survival changes with the order of magnitude of its age. Multiples of ten seconds, like the default window.
AGE_CLASSES_S: tuple[int, ...] = (0, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
AGE_CLASSES_MS: tuple[int, ...] = tuple(from_age_s * 1_000 for from_age_s in AGE_CLASSES_S)
