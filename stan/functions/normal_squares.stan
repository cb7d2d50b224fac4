// Log density of records with total weight and weighted sum of squares about their means, SD sd.
real normal_squares(real squares, real total, real sd) {
  return -total * (0.5 * log(2 * pi()) + log(sd)) - 0.5 * squares / square(sd);
}
