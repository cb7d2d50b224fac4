// Sum of log densities of half-t(df, 0, scale) at each sigma > 0, normalized on (0, inf).
real half_student_t_lpdf(vector sigma, real df, real scale) {
  return student_t_lpdf(sigma | df, 0, scale) + size(sigma) * log2();
}
