"""Maps, stars, molecules, genes, graphs, signals."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "networkx",
        "a graph",
        """
        import networkx as nx
        graph = nx.path_graph(20)
        """,
        "return nx.shortest_path_length(graph, 0, n)",
    ),
    case(
        "shapely",
        "a polygon",
        """
        import shapely
        box = shapely.box(0, 0, 1, 1)
        """,
        "return box.buffer(n).area > 0",
    ),
    case(
        "pyproj",
        "a transformer",
        """
        from pyproj import Transformer
        t = Transformer.from_crs(4326, 3857)
        """,
        "return round(t.transform(10, n)[0], 3)",
    ),
    case(
        "rtree",
        "an index",
        """
        from rtree import index
        i = index.Index()
        i.insert(0, (0, 0, 1, 1))
        """,
        "return list(i.intersection((0, 0, 2, 2)))",
    ),
    case(
        "h5py",
        "an open file",
        """
        import os, tempfile, h5py
        file = h5py.File(tempfile.mktemp(), "w")
        file["a"] = list(range(100))
        file.flush()
        """,
        """return int(file["a"][n])""",
    ),
    case(
        "geopandas",
        "a frame of polygons, with an index",
        """
        import geopandas
        import shapely
        frame = geopandas.GeoDataFrame(geometry=[shapely.box(m, 0, m + 1, 1) for m in range(10)], crs=3857)
        frame.sindex
        """,
        "return len(frame.sindex.query(shapely.Point(n + 0.5, 0.5)))",
    ),
    case(
        "pyogrio",
        "a file of shapes that was read",
        """
        import os, tempfile
        import geopandas
        import pyogrio
        import shapely
        path = os.path.join(tempfile.mkdtemp(), "a.gpkg")
        shapes = [shapely.box(m, 0, m + 1, 1) for m in range(10)]
        pyogrio.write_dataframe(geopandas.GeoDataFrame({"v": range(10)}, geometry=shapes, crs=3857), path)
        pyogrio.read_dataframe(path)
        """,
        """return int(pyogrio.read_dataframe(path, where=f"v = {n}")["v"].iloc[0])""",
        "pyogrio",
        "geopandas",
    ),
    case(
        "fiona",
        "an open file of shapes",
        """
        import os, tempfile
        import fiona
        path = os.path.join(tempfile.mkdtemp(), "a.shp")
        schema = {"geometry": "Point", "properties": {"v": "int"}}
        with fiona.open(path, "w", driver="ESRI Shapefile", crs="EPSG:3857", schema=schema) as out:
            for m in range(600):
                point = {"type": "Point", "coordinates": (m, m)}
                out.write({"geometry": point, "properties": {"v": m}})
        shapes = fiona.open(path)
        """,
        """return [shapes[100 * (m % 6)]["properties"]["v"] for m in range(n, n + 5000)]""",
    ),
    case(
        "rasterio",
        "an open raster",
        """
        import os, tempfile
        import numpy as np
        import rasterio
        from rasterio.windows import Window
        path = os.path.join(tempfile.mkdtemp(), "a.tif")
        with rasterio.open(
            path, "w", driver="GTiff", width=2000, height=2000, count=1, dtype="uint16", crs="EPSG:3857",
            transform=rasterio.Affine(1, 0, 0, 0, -1, 0),
        ) as out:
            out.write(np.repeat(np.arange(2000, dtype="uint16"), 2000).reshape(1, 2000, 2000))
        raster = rasterio.open(path)
        """,
        "return [int(raster.read(1, window=Window(0, 7 * m + n, 9, 1))[0, 0]) for m in range(280)]",
    ),
    case(
        "netcdf4",
        "an open file",
        """
        import os, tempfile
        import netCDF4
        path = os.path.join(tempfile.mkdtemp(), "a.nc")
        with netCDF4.Dataset(path, "w") as out:
            out.createDimension("x", 100)
            out.createVariable("v", "i4", ("x",))[:] = range(100)
        data = netCDF4.Dataset(path)
        """,
        """return [int(data["v"][m]) for m in range(n, n + 50)]""",
        "netCDF4",
    ),
    case(
        "tables",
        "an open file",
        """
        import os, tempfile
        import tables
        path = os.path.join(tempfile.mkdtemp(), "a.h5")
        with tables.open_file(path, "w") as out:
            out.create_array(out.root, "v", list(range(100)))
        file = tables.open_file(path)
        """,
        "return [int(file.root.v[m]) for m in range(n, n + 50)]",
    ),
    case(
        "astropy",
        "an image in an open file",
        """
        import os, tempfile
        import numpy as np
        from astropy.io import fits
        path = os.path.join(tempfile.mkdtemp(), "a.fits")
        images = [fits.ImageHDU(np.full((50, 50), m, "int16")) for m in range(6)]
        fits.HDUList([fits.PrimaryHDU(), *images]).writeto(path)
        file = fits.open(path, memmap=False, lazy_load_hdus=True)
        """,
        "return int(file[n + 1].data.sum())",
    ),
    case(
        "rdkit",
        "a molecule",
        """
        from rdkit import Chem
        from rdkit.Chem import AllChem
        molecule = Chem.AddHs(Chem.MolFromSmiles("CCO"))
        AllChem.EmbedMultipleConfs(molecule, 2, randomSeed=1, numThreads=2)
        """,
        "return molecule.GetNumAtoms() + n",
    ),
    case(
        "biopython",
        "an index of an open file of sequences",
        """
        import os, tempfile
        from Bio import SeqIO
        path = os.path.join(tempfile.mkdtemp(), "a.fasta")
        with open(path, "w") as out:
            for m in range(6):
                out.write(f">s{m}\\n" + "ACGT"[m % 4] * (1000 + m) + "\\n")
        sequences = SeqIO.index(path, "fasta")
        """,
        """return [str(sequences[f"s{m % 6}"].seq[:3]) for m in range(n, n + 1000)]""",
    ),
    case(
        "pysam",
        "an open file of sequences",
        """
        import os, tempfile
        import pysam
        path = os.path.join(tempfile.mkdtemp(), "a.fasta")
        with open(path, "w") as out:
            for m in range(6):
                out.write(f">s{m}\\n" + "ACGT"[m % 4] * 100000 + "\\n")
        pysam.faidx(path)
        sequences = pysam.FastaFile(path)
        """,
        """return [sequences.fetch(f"s{m % 6}", 50000, 50003) for m in range(n, n + 5000)]""",
    ),
    case(
        "pyfaidx",
        "an open file of sequences",
        """
        import os, tempfile
        from pyfaidx import Fasta
        path = os.path.join(tempfile.mkdtemp(), "a.fasta")
        with open(path, "w") as out:
            for m in range(6):
                out.write(f">s{m}\\n" + "ACGT"[m % 4] * 100000 + "\\n")
        sequences = Fasta(path)
        """,
        """return [str(sequences[f"s{m % 6}"][50000:50003]) for m in range(n, n + 2000)]""",
    ),
    case(
        "pywavelets",
        "a transform",
        """
        import numpy as np
        import pywt
        pywt.dwt(np.arange(8.0), "db1")
        """,
        """return round(float(pywt.dwt(np.arange(8.0) + n, "db1")[0][0]), 6)""",
        "PyWavelets",
    ),
    case(
        "igraph",
        "a graph",
        """
        import igraph
        graph = igraph.Graph.Ring(20)
        """,
        "return graph.distances(0, n)[0][0]",
    ),
    case(
        "rustworkx",
        "a graph, searched in threads",
        """
        import rustworkx as rx
        graph = rx.generators.path_graph(400)
        rx.all_pairs_dijkstra_path_lengths(graph, lambda _: 1.0)
        """,
        "return rx.all_pairs_dijkstra_path_lengths(graph, lambda _: 1.0)[0][n + 1]",
    ),
    case(
        "scipy-fft",
        "a transform of scipy, planned for two threads",
        """
        import numpy as np
        import scipy.fft
        waves = np.ones((64, 1024))
        scipy.fft.fft(waves, workers=2)
        """,
        "return float(abs(scipy.fft.fft(waves + n, workers=2)[0, 0]))",
        "scipy",
    ),
]
