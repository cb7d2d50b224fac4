# Golden values for tables of a subpopulation, computed by R's survey package: subset() of a design.
#
# Run in this folder: Rscript subpopulation_survey.R
# Reads the records of taylor_survey.csv (written by taylor_survey.R); writes
# subpopulation_survey.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE)

frame <- read.csv("taylor_survey.csv")
frame$one <- 1
population <- 1.07 * sum(frame$weight)
conditions <- list(
  "y >= 30000 and b == 'b1'" = frame$y >= 30000 & frame$b == "b1",
  "a in ('a1', 'a3') or not (c == 'c2')" = frame$a %in% c("a1", "a3") | !(frame$c == "c2"),
  "z == 1" = frame$z == 1)
designs <- list(
  list(name = "unstratified", psu = NULL, strata = NULL, fpc = NULL, lonely = "fail"),
  list(name = "clusters", psu = "psu", strata = "stratum", fpc = NULL, lonely = "fail"),
  list(name = "clusters with fpc", psu = "psu", strata = "stratum", fpc = "fpc_psu",
       lonely = "fail"),
  list(name = "lonely records, adjust", psu = NULL, strata = "stratum_lonely", fpc = NULL,
       lonely = "adjust"),
  list(name = "lonely clusters, average", psu = "psu", strata = "stratum_lonely_psu", fpc = NULL,
       lonely = "average"))
part <- function(name) if (is.null(name)) NULL else reformulate(name)

## Rows in the order of the tables: each variable's margin first, the last runs fastest.
rows <- expand.grid(b = c("All", "b1", "b2"), a = c("All", paste0("a", 1:4)),
                    stringsAsFactors = FALSE)[, c("a", "b")]
in_row <- function(row) (row$a == "All" | frame$a == row$a) & (row$b == "All" | frame$b == row$b)
value <- function(design, condition, formula, fun) {
  found <- lapply(seq_len(nrow(rows)), function(i) {
    inside <- condition & in_row(rows[i, ])
    if (sum(inside) < 2) return(c(NA, NA))
    made <- fun(formula, subset(design, inside))
    c(as.numeric(coef(made))[1], as.numeric(SE(made))[1])
  })
  list(estimate = sapply(found, `[`, 1), se = sapply(found, `[`, 2))
}
median_of <- function(formula, design)
  svyquantile(formula, design, 0.5, interval.type = "mean", qrule = "math", df = degf(whole))

cases <- list()
for (case in designs) {
  options(survey.lonely.psu = case$lonely)
  ids <- if (is.null(case$psu)) ~1 else part(case$psu)
  whole <- svydesign(ids, strata = part(case$strata), weights = ~weight, fpc = part(case$fpc),
                     data = frame, nest = TRUE)
  calibrated <- calibrate(whole, ~1, c(`(Intercept)` = population))
  for (name in names(conditions)) {
    of <- function(design) list(
      count = value(design, conditions[[name]], ~one, svytotal),
      total = value(design, conditions[[name]], ~y, svytotal),
      mean = value(design, conditions[[name]], ~y, svymean))
    cases[[length(cases) + 1]] <- list(
      name = paste(case$name, name, sep = ": "), where = name, psu = case$psu,
      strata = case$strata, fpc = case$fpc, lonely_psu = case$lonely,
      plain = c(of(whole), list(median = value(whole, conditions[[name]], ~y, median_of))),
      ratio = of(calibrated))
  }
}
write_json(list(r = R.version.string, survey = as.character(packageVersion("survey")),
                population = population, cases = cases),
           "subpopulation_survey.json", digits = NA, auto_unbox = TRUE, null = "null", na = "null",
           pretty = FALSE)
