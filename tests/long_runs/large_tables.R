# Means of all cells of a large table by R's survey; of the first CELLS cells only where CELLS > 0,
# each as svyby makes it: svymean of a subset. Called by large_tables.py: data, result, CELLS.
suppressPackageStartupMessages(library(survey))
given <- commandArgs(TRUE)
d <- read.csv(given[1], colClasses = c(a = "character", b = "character", c = "character"))
s <- svydesign(ids = ~1, strata = ~stratum, weights = ~weight, data = d)
limit <- as.integer(given[3])
start <- proc.time()[["elapsed"]]
if (limit == 0) {
  found <- svyby(~y, ~a + b + c, s, svymean)
  table <- data.frame(key = paste(found$a, found$b, found$c, sep = "|"), estimate = found$y,
                      se = as.numeric(SE(found)))
} else {
  keys <- head(unique(paste(d$a, d$b, d$c, sep = "|")), limit)
  rows <- lapply(strsplit(keys, "|", fixed = TRUE), function(k) {
    m <- svymean(~y, subset(s, a == k[1] & b == k[2] & c == k[3]))
    c(coef(m), SE(m))
  })
  rows <- do.call(rbind, rows)
  table <- data.frame(key = keys, estimate = rows[, 1], se = rows[, 2])
}
seconds <- proc.time()[["elapsed"]] - start
table$estimate <- sprintf("%.17g", table$estimate)
table$se <- sprintf("%.17g", table$se)
write.csv(table, given[2], row.names = FALSE)
cat(seconds, as.character(packageVersion("survey")), R.version.string, sep = "\n")
