// Package waiting keeps the list of pending keys, a report for operators. No decision rests on it.
package waiting
