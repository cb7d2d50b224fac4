# Golden values for surveysynth.estimation.replication, computed by R's survey package.
#
# Run in this folder: Rscript replication_survey.R
# Reads the records of taylor_survey.csv (written by taylor_survey.R); writes replication_survey.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
# drop.replicates would leave completely sampled strata out of the replicates of a mean.
options(survey.ultimate.cluster = FALSE, survey.drop.replicates = FALSE)
RNGkind("Mersenne-Twister", "Inversion", "Rejection")
set.seed(20090625)

frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
frame$one <- 1
# Two PSUs a stratum, for balanced half-samples: the last PSUs of a stratum are merged.
part <- as.integer(sub(".*p", "", frame$psu))
frame$psu_of_two <- paste0(frame$stratum, ifelse(part == 1, "p1", "p2"))
population <- 1.07 * sum(frame$weight)

## Table rows in the order of build_domains: each variable's margin first, the last runs fastest.
levels_of <- list(a = paste0("a", 1:4), b = c("b1", "b2"))
by <- c("a", "b")
grid <- expand.grid(rev(lapply(levels_of, function(l) c("All", l))), stringsAsFactors = FALSE)[, by]
key <- function(frame) do.call(paste, c(frame[by], sep = "|"))

estimate <- function(design, outcome, fun) {
  out <- data.frame(key = key(grid), estimate = NA_real_, se = NA_real_)
  for (kept in list(character(), "a", "b", by)) {
    if (length(kept) == 0) {
      cells <- fun(outcome, design)
      at <- match("All|All", out$key)
    } else {
      cells <- svyby(outcome, reformulate(kept), design, fun)
      keys <- as.data.frame(cells)[kept]
      keys[setdiff(by, kept)] <- "All"
      at <- match(key(keys), out$key)
    }
    out$estimate[at] <- as.numeric(coef(cells))
    out$se[at] <- as.numeric(SE(cells))
  }
  list(estimate = out$estimate, se = out$se)
}
results <- function(design) list(
  count = estimate(design, ~one, svytotal), total = estimate(design, ~y, svytotal),
  mean = estimate(design, ~y, svymean), proportion = estimate(design, ~z, svymean))

plan <- function(ids, strata, fpc, lonely) {
  options(survey.lonely.psu = lonely)
  svydesign(ids = reformulate(ids), strata = if (!is.null(strata)) reformulate(strata),
            fpc = if (!is.null(fpc)) reformulate(fpc), weights = ~weight, data = frame)
}
both <- function(design) list(
  plain = results(design), df = degf(design),
  ratio = results(calibrate(design, ~1, c(`(Intercept)` = population), compress = FALSE)))

case <- function(name, ids, strata, fpc, lonely = "fail") {
  design <- plan(ids, strata, fpc, lonely)
  type <- if (is.null(strata)) "JK1" else "JKn"
  c(list(name = name, psu = if (ids == "1") NULL else ids, strata = strata, fpc = fpc,
         lonely_psu = lonely, df_design = degf(design)),
    list(estimate = both(as.svrepdesign(design, type = type, mse = TRUE)),
         mean = both(as.svrepdesign(design, type = type, mse = FALSE))))
}
jackknife <- list(
  case("unstratified", "1", NULL, NULL),
  case("unstratified clusters", "psu", NULL, NULL),
  case("stratified", "1", "stratum", NULL),
  case("stratified with fpc", "1", "stratum", "fpc_record"),
  case("clusters", "psu", "stratum", NULL),
  case("clusters with fpc", "psu", "stratum", "fpc_psu"),
  case("lonely clusters, remove", "psu", "stratum_lonely_psu", NULL, "remove"),
  case("lonely clusters, certainty", "psu", "stratum_lonely_psu", NULL, "certainty"))

## Balanced half-samples: R's own columns, as an agency would publish them.
balanced <- lapply(c(0, 0.3), function(rho) {
  design <- as.svrepdesign(plan("psu_of_two", "stratum", NULL, "fail"), type = "Fay",
                           fay.rho = rho, mse = TRUE)
  c(list(rho = rho, columns = weights(design, "replication"), scale = design$scale,
         rscales = design$rscales, psu = "psu_of_two", strata = "stratum"), both(design))
})

## Preston's multipliers: what they are in each stratum, how many are high, how often together.
preston <- lapply(list(NULL, "fpc_psu"), function(fpc) {
  replicates <- 4000
  design <- plan("psu", "stratum", fpc, "fail")
  matrix <- weights(as.svrepdesign(design, type = "mrbbootstrap", replicates = replicates),
                    "replication")
  first <- !duplicated(frame$psu)
  matrix <- matrix[first, ]
  strata <- frame$stratum[first]
  c(list(fpc = fpc, replicates = replicates), list(strata = lapply(unique(strata), function(h) {
    inside <- matrix[strata == h, , drop = FALSE]
    high <- inside > 1
    list(stratum = h, values = sort(unique(round(as.vector(inside), 12))),
         kept = sort(unique(colSums(high))), frequency = rowMeans(high),
         together = crossprod(t(high)) / replicates)
  })))
})

write(toJSON(list(
  r = R.version.string, survey = as.character(packageVersion("survey")),
  date = format(Sys.Date()), population = population, jackknife = jackknife,
  balanced = balanced, preston = preston),
  auto_unbox = TRUE, digits = I(16), null = "null", na = "null"), "replication_survey.json")
