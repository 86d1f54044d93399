import faiss
import numpy

random = numpy.random.default_rng(4)
base = random.integers(0, 255, (120_000, 96)).astype("float32")
asked = base[::1201] + 1
flat = faiss.IndexFlatL2(96)
flat.add(base)
print(flat.search(asked, 5)[1].tolist())
lists = faiss.IndexIVFFlat(faiss.IndexFlatL2(96), 96, 128)
lists.train(base[:20_000])
lists.add(base)
lists.nprobe = 4
print((lists.search(asked, 1)[1][:, 0] == numpy.arange(len(asked)) * 1201).sum())
