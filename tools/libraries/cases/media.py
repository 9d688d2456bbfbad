"""Images, sound, video, documents."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "opencv",
        "a filter",
        """
        import numpy as np, cv2
        image = np.ones((400, 400), "uint8")
        cv2.GaussianBlur(image, (5, 5), 0)
        """,
        "return int(cv2.GaussianBlur(image * n, (5, 5), 0)[3, 3])",
        "opencv-python-headless",
        "numpy",
    ),
    case(
        "pillow",
        "an image",
        """
        from PIL import Image
        image = Image.new("RGB", (100, 100))
        image.resize((50, 50))
        """,
        "return image.resize((n + 1, 2)).size",
    ),
    case(
        "matplotlib",
        "a figure",
        """
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        figure = plt.figure()
        figure.gca().plot([1, 2])
        """,
        """
        import io
        out = io.BytesIO()
        figure.savefig(out)
        return out.tell() > 1000
        """,
    ),
    case(
        "opencv-threads",
        "a filter that runs in threads",
        """
        import cv2
        import numpy as np
        cv2.setNumThreads(4)
        image = np.ones((2000, 2000), "uint8")
        cv2.resize(cv2.GaussianBlur(image, (15, 15), 0), (900, 900))
        """,
        "return int(cv2.resize(cv2.GaussianBlur(image * n, (15, 15), 0), (900, 900))[3, 3])",
        "opencv-python-headless",
        "numpy",
    ),
    case(
        "scikit-image",
        "a filtered image",
        """
        import numpy as np
        from skimage import filters
        image = np.eye(100)
        filters.gaussian(image)
        """,
        "return round(float(filters.gaussian(image * n).sum()), 6)",
    ),
    case(
        "pyvips",
        "an image, computed in threads",
        """
        import pyvips
        image = pyvips.Image.black(1000, 1000) + 3
        image.avg()
        """,
        "return (image + n).avg()",
        "pyvips",
        "pyvips-binary",
    ),
    case(
        "imageio",
        "an open file with frames",
        """
        import os, tempfile
        import imageio.v3 as iio
        import numpy as np
        path = os.path.join(tempfile.mkdtemp(), "a.gif")
        iio.imwrite(path, [np.full((20, 20), 40 * m, "uint8") for m in range(6)])
        file = iio.imopen(path, "r", plugin="pillow")
        """,
        "return [int(file.read(index=m % 6)[3, 3][0]) for m in range(n, n + 200)]",
    ),
    case(
        "av",
        "an open video with a decoder in threads",
        """
        import os, tempfile
        import av
        import numpy as np
        path = os.path.join(tempfile.mkdtemp(), "a.mp4")
        with av.open(path, "w") as out:
            stream = out.add_stream("mpeg4", rate=24)
            stream.width = stream.height = 64
            for m in range(24):
                frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 10 * m, "uint8"), format="rgb24")
                out.mux(stream.encode(frame))
            out.mux(stream.encode())
        video = av.open(path)
        video.streams.video[0].thread_type = "AUTO"
        next(video.decode(video=0))
        """,
        """
        video.seek(0)
        return sum(1 for _ in video.decode(video=0)) + n
        """,
        "av",
        "numpy",
    ),
    case(
        "soundfile",
        "an open file",
        """
        import os, tempfile
        import numpy as np
        import soundfile
        path = os.path.join(tempfile.mkdtemp(), "a.wav")
        soundfile.write(path, np.arange(30000, dtype="int16"), 8000)
        sound = soundfile.SoundFile(path)
        def read(at):
            sound.seek(at)
            return int(sound.read(1, dtype="int16")[0])
        """,
        "return [read(1000 * (m % 30)) for m in range(n, n + 500)]",
        "soundfile",
        "numpy",
    ),
    case(
        "pymupdf",
        "an open document",
        """
        import os, tempfile
        import pymupdf
        path = os.path.join(tempfile.mkdtemp(), "a.pdf")
        document = pymupdf.open()
        for m in range(6):
            document.new_page().insert_text((72, 72), f"page {m}")
        document.save(path)
        document = pymupdf.open(path)
        """,
        "return [document[m % 6].get_text().strip() for m in range(n, n + 60)]",
    ),
    case(
        "pypdf",
        "a reader of an open file",
        """
        import os, tempfile
        from pypdf import PdfReader, PdfWriter
        path = os.path.join(tempfile.mkdtemp(), "a.pdf")
        writer = PdfWriter()
        for m in range(6):
            writer.add_blank_page(width=100 + m, height=100)
        writer.write(path)
        reader = PdfReader(open(path, "rb"))
        """,
        "return float(reader.pages[n].mediabox.width)",
    ),
    case(
        "pypdfium2",
        "an open document",
        """
        import os, tempfile
        import pypdfium2 as pdfium
        path = os.path.join(tempfile.mkdtemp(), "a.pdf")
        document = pdfium.PdfDocument.new()
        for m in range(6):
            document.new_page(100 + m, 100)
        document.save(path)
        document = pdfium.PdfDocument(path)
        """,
        "return document[n].get_width()",
    ),
    case(
        "reportlab",
        "a page",
        """
        import io
        from reportlab.pdfgen.canvas import Canvas
        def page(text):
            out = io.BytesIO()
            canvas = Canvas(out, invariant=True)
            canvas.drawString(72, 72, text)
            canvas.save()
            return out.getvalue()
        page("first")
        """,
        "return len(page(str(n)))",
    ),
    case(
        "openpyxl",
        "an open workbook, read as it is needed",
        """
        import os, tempfile
        import openpyxl
        path = os.path.join(tempfile.mkdtemp(), "a.xlsx")
        book = openpyxl.Workbook()
        for m in range(3000):
            book.active.append([m, f"text {m}"])
        book.save(path)
        sheet = openpyxl.load_workbook(path, read_only=True).active
        """,
        "return sum(row[0].value for row in sheet.iter_rows()) + n",
    ),
    case(
        "xlsxwriter",
        "a workbook in memory",
        """
        import io
        import xlsxwriter
        def book(value):
            out = io.BytesIO()
            with xlsxwriter.Workbook(out, {"in_memory": True}) as made:
                made.add_worksheet().write(0, 0, value)
            return out.getvalue()
        book(1)
        """,
        "return len(book(n)) > 1000",
    ),
    case(
        "python-docx",
        "a document",
        """
        import docx
        document = docx.Document()
        document.add_paragraph("some words")
        """,
        "return document.paragraphs[0].text + str(n)",
    ),
    case(
        "pygame",
        "a screen and a mixer without devices",
        """
        import os
        os.environ.update(SDL_VIDEODRIVER="dummy", SDL_AUDIODRIVER="dummy", PYGAME_HIDE_SUPPORT_PROMPT="1")
        import pygame
        pygame.init()
        screen = pygame.display.set_mode((100, 100))
        """,
        """
        screen.fill((n, 0, 0))
        pygame.display.flip()
        return screen.get_at((1, 1))[0]
        """,
    ),
]
