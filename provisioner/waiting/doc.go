// Package waiting keeps the list of pending keys, a report for operators. No decision depends on it.
package waiting
