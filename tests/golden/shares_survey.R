# Golden values for shares and their intervals, computed by R's survey package.
#
# Run in this folder: Rscript shares_survey.R
# Takes the records of taylor_survey.csv. Shares of the levels of a factor by svyby and svymean;
# intervals of each level by svyciprop(method = "xlogit") with the degrees of freedom of the whole
# design. Writes shares_survey.json: for every row of the table the levels one after the other.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.adjust.domain.lonely = FALSE,
        survey.lonely.psu = "fail")

frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
bounds <- c(45000, 75000)
levels_of_k <- c("low", "middle", "high")
frame$k <- factor(levels_of_k[1 + (frame$y >= bounds[1]) + (frame$y >= bounds[2])], levels_of_k)
population <- 1.07 * sum(frame$weight)
rows <- expand.grid(b = c("All", "b1", "b2"), a = c("All", paste0("a", 1:4)),
                    stringsAsFactors = FALSE)[, c("a", "b")]

in_row <- function(row) (row$a == "All" | frame$a == row$a) & (row$b == "All" | frame$b == row$b)

shares <- function(design, level) {
  found <- NULL
  for (i in seq_len(nrow(rows))) {
    inside <- in_row(rows[i, ])
    if (!any(inside)) {
      found <- rbind(found, data.frame(estimate = rep(NA, 3), se = NA, lower = NA, upper = NA))
      next
    }
    domain <- subset(design, inside)
    together <- svymean(~k, domain)
    for (name in levels_of_k) {
      one <- suppressWarnings(eval(bquote(
        svyciprop(~I(k == .(name)), domain, method = "xlogit", level = level, df = degf(design)))))
      ends <- as.vector(attr(one, "ci"))
      found <- rbind(found, data.frame(
        estimate = as.numeric(coef(together)[paste0("k", name)]),
        se = as.numeric(SE(together)[paste0("k", name)]), lower = ends[1], upper = ends[2]))
    }
  }
  as.list(found)
}

case <- function(name, ids, strata, fpc, level) {
  design <- svydesign(ids = reformulate(ids), strata = if (!is.null(strata)) reformulate(strata),
                      fpc = if (!is.null(fpc)) reformulate(fpc), weights = ~weight, data = frame)
  calibrated <- calibrate(design, ~1, c(`(Intercept)` = population))
  list(name = name, psu = if (ids == "1") NULL else ids, strata = strata, fpc = fpc, level = level,
       df = degf(design), plain = shares(design, level), ratio = shares(calibrated, level))
}

cases <- list(
  case("unstratified", "1", NULL, NULL, 0.95),
  case("stratified with fpc", "1", "stratum", "fpc_record", 0.9),
  case("clusters", "psu", "stratum", NULL, 0.95))
write(toJSON(list(
  r = R.version.string, survey = as.character(packageVersion("survey")),
  date = format(Sys.Date()), population = population, bounds = bounds, levels = levels_of_k,
  cases = cases),
  auto_unbox = TRUE, digits = I(16), null = "null", na = "null"), "shares_survey.json")
