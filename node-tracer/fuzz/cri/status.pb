

abc*

10.0.0.5
info	{"pid":3}