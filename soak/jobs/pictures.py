import hashlib

from PIL import Image, ImageFilter, ImageOps

size = 3600
picture = Image.merge("RGB", [Image.radial_gradient("L").resize((size, size)), Image.linear_gradient("L").resize((size, size)),
                              Image.linear_gradient("L").rotate(90).resize((size, size))])
turned = picture.rotate(30, expand=True, resample=Image.Resampling.BICUBIC)
soft = turned.filter(ImageFilter.BoxBlur(7))
small = ImageOps.autocontrast(soft).resize((900, 900), Image.Resampling.LANCZOS).quantize(64)
for image in (picture, turned, soft, small):
    print(image.size, hashlib.sha256(image.tobytes()).hexdigest())
