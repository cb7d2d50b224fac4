// What effects a of PSUs (rows) add to the weighted squares of Z - X b: total, x_sum and residual are
// sums by PSU of alpha, of alpha x and of alpha (z - x fit), shift is b - fit.
matrix effect_squares(matrix a, matrix shift, vector total, matrix x_sum, matrix residual) {
  matrix[cols(a), cols(a)] added
    = -(2 * (residual - x_sum * shift) - diag_pre_multiply(total, a))' * a;
  return 0.5 * (added + added');
}
