// Weighted sum of squares of y - X b for the first column y of Z (see weighted_squares).
real outcome_squares(vector beta, matrix gram, matrix fit, matrix residual) {
  return residual[1, 1] + quad_form(gram, beta - fit[, 1]);
}
