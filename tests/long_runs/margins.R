# Estimates of rows of tables from stacked datasets by R's survey. Called by margins.py: the stacked
# records, the rows (statistic, column of y, one column a by-column, "" for a margin), the result.
suppressPackageStartupMessages(library(survey))
given <- commandArgs(TRUE)
d <- read.csv(given[1], check.names = FALSE)
rows <- read.csv(given[2], colClasses = "character", check.names = FALSE)
by <- setdiff(names(rows), c("statistic", "y"))
for (name in by) d[[name]] <- as.character(d[[name]])
s <- svydesign(ids = ~1, weights = ~w, data = d)
rows$estimate <- sapply(seq_len(nrow(rows)), function(i) {
  inside <- rep(TRUE, nrow(d))
  for (name in by) if (rows[i, name] != "") inside <- inside & d[[name]] == rows[i, name]
  of <- if (rows[i, "statistic"] == "total") svytotal else svymean
  sprintf("%.17g", coef(of(reformulate(rows[i, "y"]), s[inside, ], na.rm = FALSE)))
})
write.csv(rows["estimate"], given[3], row.names = FALSE)
cat(as.character(packageVersion("survey")))
