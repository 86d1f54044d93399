set terminal png size 1200,900
set isosamples 400,400
set hidden3d
set output "plot.png"
splot sin(x) * cos(y) * exp(-(x * x + y * y) / 40)
set output
