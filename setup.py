from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

setup(
    name="fairseq-memattn",
    version="0.1.0",
    description="Long-context transformers with a bounded memory, as a fairseq plugin",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(
        include=["fairseq_memattn", "fairseq_memattn.*", "data_prep", "data_prep.*"]
    ),
    package_data={"data_prep": ["**/*.tsv"]},
    python_requires=">=3.11",
    # torch and fairseq are deliberately absent: their builds are the user's choice, and
    # importing fairseq_memattn says exactly what is missing.
    install_requires=[
        "numpy",
        "sacrebleu",
        "sentencepiece>=0.2.3",
        "hydra-core",
        "matplotlib",
        "tqdm",
    ],
    extras_require={
        # corpora of data_prep that are tokenised, truecased or segmented with BPE
        "data": ["sacremoses", "subword-nmt"],
        "dev": [
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "mypy",
            "types-tqdm",
            "tensorboard",
            # the oracle of T5 and BERT; brings safetensors, in which it saves models
            "transformers",
        ],
    },
    entry_points={"console_scripts": ["memattn = fairseq_memattn.cli:main"]},
)
