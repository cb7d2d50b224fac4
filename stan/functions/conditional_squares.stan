// Weighted sum of squares of v - slope y - X c for the columns (y, v) of Z (see weighted_squares).
real conditional_squares(real slope, vector c, matrix gram, matrix fit, matrix residual) {
  vector[rows(c)] shift = c - fit[, 2] + slope * fit[, 1];
  return residual[2, 2] - 2 * slope * residual[1, 2] + square(slope) * residual[1, 1]
         + quad_form(gram, shift);
}
