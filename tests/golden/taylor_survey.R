# Golden values for surveysynth.estimation.taylor, computed by R's survey package.
#
# Run in this folder: Rscript taylor_survey.R
# Builds its records from a fixed seed, writes them to taylor_survey.csv (rounded, then read back,
# so that both languages see the same doubles) and the results to taylor_survey.json.
suppressPackageStartupMessages({ library(survey); library(jsonlite) })
options(survey.ultimate.cluster = FALSE, survey.adjust.domain.lonely = FALSE)
RNGkind("Mersenne-Twister", "Inversion", "Rejection")
set.seed(20030917)

## Records: 6 strata of 3 to 5 PSUs of 4 to 7 records, by variables a (4 levels), b and c (2 each).
psus <- c(4, 3, 5, 3, 4, 3)
frame <- do.call(rbind, lapply(seq_along(psus), function(h)
  do.call(rbind, lapply(seq_len(psus[h]), function(c) {
    size <- sample(4:7, 1)
    data.frame(stratum = paste0("s", h), psu = paste0("s", h, "p", c),
               effect = rep(rnorm(1, 0, 0.3), size))
  }))))
n <- nrow(frame)
h <- as.integer(substr(frame$stratum, 2, 2))
# Level a3 misses strata s3 to s6, a2 misses s1: their domains lack whole strata.
frame$a <- ifelse(h <= 2 & runif(n) < 0.4, "a3", ifelse(h > 1 & runif(n) < 0.5, "a2", "a1"))
frame$b <- sample(c("b1", "b2"), n, TRUE)
frame$c <- sample(c("c1", "c2"), n, TRUE)
frame$a[n] <- "a4"                             # one record: a4, and (a4, b1); (a4, b2) is empty
frame$b[n] <- "b1"
frame$y <- round(50000 * exp(frame$effect + 0.1 * h + rnorm(n, 0, 0.4)), 2)
frame$z <- as.integer(runif(n) < 0.35)
frame$weight <- round(exp(rnorm(n, 3 + 0.2 * h, 0.5)), 3)
frame$effect <- NULL
# Sampling fractions of PSUs and of records, constant within a stratum; s5 is sampled completely.
frame$fpc_psu <- c(0.1, 0.25, 0.4, 0.05, 1, 0.3)[h]
frame$fpc_record <- c(0.02, 0.15, 0.08, 0.01, 1, 0.2)[h]
# Lonely strata. One stage: the first record of s1 and the last of all (domain a4) stand alone.
frame$stratum_lonely <- frame$stratum
frame$stratum_lonely[1] <- "t1"
frame$stratum_lonely[n] <- "t2"
# Clusters: the first PSU of s2 and the last of s6 stand alone.
frame$stratum_lonely_psu <- frame$stratum
frame$stratum_lonely_psu[frame$psu == "s2p1"] <- "t1"
frame$stratum_lonely_psu[frame$psu == "s6p3"] <- "t2"
# The same with an fpc: t1 is a certainty PSU (fraction 1, not lonely), t2 is not.
frame$fpc_lonely_psu <- ifelse(frame$stratum_lonely_psu == "t1", 1,
                        ifelse(frame$stratum_lonely_psu == "t2", 0.5, frame$fpc_psu))
write.csv(frame, "taylor_survey.csv", row.names = FALSE, quote = FALSE)
frame <- read.csv("taylor_survey.csv", colClasses = c(stratum = "character"))
frame$one <- 1
population <- 1.07 * sum(frame$weight)

## Table rows in the order of build_domains: each variable's margin first, the last runs fastest.
levels_of <- list(a = paste0("a", 1:4), b = c("b1", "b2"), c = c("c1", "c2"))
row_keys <- function(by) {
  grid <- expand.grid(rev(lapply(levels_of[by], function(l) c("All", l))), stringsAsFactors = FALSE)
  grid[, by, drop = FALSE]
}
key <- function(frame, by) do.call(paste, c(frame[by], sep = "|"))

estimate <- function(design, by, outcome, fun) {
  rows <- row_keys(by)
  out <- data.frame(key = key(rows, by), estimate = NA_real_, se = NA_real_)
  fill <- function(keys, estimates, ses) {
    at <- match(keys, out$key)
    out$estimate[at] <<- estimates
    out$se[at] <<- ses
  }
  for (mask in 0:(2^length(by) - 1)) {
    kept <- by[bitwAnd(mask, 2^(seq_along(by) - 1)) > 0]
    if (length(kept) == 0) {
      whole <- fun(outcome, design)
      fill(paste(rep("All", length(by)), collapse = "|"), as.numeric(coef(whole)),
           as.numeric(SE(whole)))
    } else {
      cells <- svyby(outcome, reformulate(kept), design, fun)
      keys <- as.data.frame(cells)[kept]
      keys[setdiff(by, kept)] <- "All"
      fill(key(keys, by), as.numeric(coef(cells)), as.numeric(SE(cells)))
    }
  }
  list(estimate = out$estimate, se = out$se)
}

case <- function(name, ids, strata, fpc, lonely, by = c("a", "b")) {
  options(survey.lonely.psu = lonely)
  design <- svydesign(ids = reformulate(ids), strata = if (!is.null(strata)) reformulate(strata),
                      fpc = if (!is.null(fpc)) reformulate(fpc), weights = ~weight, data = frame)
  calibrated <- calibrate(design, ~1, c(`(Intercept)` = population))
  results <- function(d) list(
    count = estimate(d, by, ~one, svytotal),
    total = estimate(d, by, ~y, svytotal),
    mean = estimate(d, by, ~y, svymean),
    proportion = estimate(d, by, ~z, svymean))
  list(name = name, psu = if (ids == "1") NULL else ids, strata = strata, fpc = fpc,
       lonely_psu = lonely, by = by, df = degf(design),
       plain = results(design), ratio = results(calibrated))
}

cases <- list(
  case("unstratified", "1", NULL, NULL, "fail"),
  case("unstratified clusters", "psu", NULL, NULL, "fail"),
  case("stratified", "1", "stratum", NULL, "fail"),
  case("stratified with fpc", "1", "stratum", "fpc_record", "fail"),
  case("clusters", "psu", "stratum", NULL, "fail"),
  case("clusters, three by variables", "psu", "stratum", NULL, "fail", c("a", "b", "c")),
  case("clusters with fpc", "psu", "stratum", "fpc_psu", "fail"))
for (rule in c("remove", "certainty", "adjust", "average")) {
  cases <- c(cases, list(
    case(paste("lonely records,", rule), "1", "stratum_lonely", NULL, rule),
    case(paste("lonely clusters,", rule), "psu", "stratum_lonely_psu", NULL, rule),
    case(paste("lonely clusters with fpc,", rule), "psu", "stratum_lonely_psu", "fpc_lonely_psu",
         rule)))
}
write(toJSON(list(
  r = R.version.string, survey = as.character(packageVersion("survey")),
  date = format(Sys.Date()), population = population, cases = cases),
  auto_unbox = TRUE, digits = I(16), null = "null", na = "null"), "taylor_survey.json")
