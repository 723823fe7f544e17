"""Records two whole models, a decoder as GPT-2 and a ResNet-50, for the page of week 15.

    python benchmarks/models.py                  on a GPU: into results/notebooks.json, under two minutes on an H200
    python benchmarks/models.py --tiny           small sizes on the CPU, prints only: the program is tested in this way

It measures tokens and images per second, the three longest kernels, the gains that a replay of the trace predicts, and
the gain of one change to each step: a CUDA graph, or batches that are copied ahead of time.
"""

from __future__ import annotations

import argparse
import json
import os

import torch

from kernelpath.course import registry
from kernelpath.show import models, notebook, results

KEY = "week15/models"
TINY = {"batch": 1, "tokens": 32, "sequences": 2, "images": 2, "pixels": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes on the CPU, without a recording")
    if parser.parse_args().tiny:
        torch.set_num_threads(1)
        decoder = models.DecoderConfig(layers=2, width=64, heads=2, vocabulary=500, context=64)
        resnet = models.ResNetConfig(blocks=(1, 1, 1, 1), width=8, classes=10)
        measured = models.record("cpu", decoder, resnet, TINY, steps=2)
    else:
        os.environ.setdefault("KERNELPATH_RECORD", str(registry.course() / results.FOLDER / results.RECORDINGS))
        measured = notebook.on_gpu(KEY, models.record)
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
