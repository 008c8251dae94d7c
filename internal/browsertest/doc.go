// Package browsertest holds one kind of test: the web console in a real browser,
// headless Chromium, against a real fleet. `make browser` runs them, with the flag
// -browser; without it they are skipped. A browser or an axe-core that is missing
// fails them.
//
// Pictures of every page, light and dark, wide and narrow, are written to the
// folder that MUSTER_SCREENSHOTS names, or else to the test's artifacts: look at
// them.
package browsertest
