// What effects of PSUs add to a weighted sum of squares, given sums by PSU of alpha times the
// residuals without them, and of alpha.
real column_squares(vector effect, vector sums, vector total) {
  return -dot_product(2 * sums - total .* effect, effect);
}
