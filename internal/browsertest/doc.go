// Package browsertest tests the web console in headless Chromium against a real fleet. `make browser` runs it, with
// the flag -browser; without the flag its tests are skipped. Pictures of every page go to the folder in
// MUSTER_SCREENSHOTS, or else to the test's artifacts.
package browsertest
