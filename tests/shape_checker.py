"""The type checker of `test_shapes.py`: beartype, where a whole number will do for a real one."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
