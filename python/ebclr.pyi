"""Visual representations without labels by Energy-Based Contrastive Learning."""
from os import PathLike
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

__version__: str

_Path = Union[str, "PathLike[str]"]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Images = Union[npt.NDArray[np.uint8], npt.NDArray[np.float32], _DLPack, _Path, Sequence[_Path]]
"""uint8 [N, H, W, C], float32 [N, C, H, W] in [-1, 1] (NumPy arrays or torch tensors), or paths."""

class Error(RuntimeError):
    """Something failed; the message says what and what to do."""

class UsageError(Error, ValueError):
    """What was given cannot work."""

class Encoder:
    def embed(self, images: _Images, part: str = ..., batch: int = ...) -> npt.NDArray[np.float32]: ...
    def energy(self, images: _Images, references: int = ..., batch: int = ...,
               data: Optional[_Path] = ...) -> npt.NDArray[np.float32]: ...
    def sample(self, count: int = ..., steps: int = ..., init: str = ..., seed: int = ...,
               references: int = ..., data: Optional[_Path] = ...) -> Tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
    @property
    def method(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def image_size(self) -> int: ...

def load(run: _Path, checkpoint: str = ..., engine: str = ..., threads: int = ...) -> Encoder: ...
def index(run: _Path, data: _Path, out: _Path, fresh: bool = ..., threads: int = ...) -> int: ...
def search(index: _Path, queries: Union[_Path, Iterable[_Path]], without: Union[None, _Path, Iterable[_Path]] = ...,
           top: int = ..., exact: bool = ..., run: _Path = ..., threads: int = ...) -> List[Tuple[str, float]]: ...
def train(config: Union[None, _Path, Mapping[str, Any]] = ..., out: Optional[_Path] = ...,
          on_step: Optional[Callable[[Dict[str, float]], object]] = ..., resume: Optional[_Path] = ..., engine: str = ...,
          threads: int = ..., data: Optional[_Path] = ...) -> str: ...
