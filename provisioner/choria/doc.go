// Package choria enrolls unmodified Choria servers that the broker admits to account CHORIA. Package provisioner
// decides.
package choria
