"""What holds confidential values and may not land in a file, a cache or another process."""

from typing import NoReturn, SupportsIndex


class Unpickled:
    """Base of objects with confidential values: neither pickled nor copied.

    Notebooks, caches and schedulers pickle what they are given. What may be kept of a fit is what
    ``to_json_dict`` and the confidential folder have; everything else is made again from the data.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds confidential values and is not pickled or copied; make "
            "it again from the survey where it is needed."
        )
