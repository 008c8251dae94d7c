// Package browsertest tests the web console in headless Chromium against a real fleet. `make browser` runs it, with
// the flag -browser; without the flag its tests are skipped. A missing browser or axe-core is a failure.
//
// It writes pictures of every page, light and dark, wide and narrow, to the folder in MUSTER_SCREENSHOTS or else to
// the test's artifacts.
package browsertest
