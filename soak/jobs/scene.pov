#declare S = seed(3);
camera { location <0, 6, -14> look_at <0, 1, 0> }
light_source { <20, 30, -20> rgb 1 }
plane { y, 0 pigment { checker rgb 0.9 rgb 0.3 } finish { reflection 0.2 } }
#declare I = 0;
#while (I < 40000)
  sphere { <rand(S) * 16 - 8, rand(S) * 5, rand(S) * 16 - 8>, 0.08 pigment { rgb <rand(S), rand(S), rand(S)> } }
  #declare I = I + 1;
#end
