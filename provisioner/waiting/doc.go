// Package waiting lists the keys that wait: for an operator's approval, for the policy to decide otherwise, or for a name.
// The list is a report that people decide on, never what a decision rests on.
package waiting
