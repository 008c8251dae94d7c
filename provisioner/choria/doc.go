// Package choria enrolls unmodified Choria servers. It speaks Choria's network protocol with the servers that the broker
// admits to account CHORIA, and leaves all decisions to package provisioner.
package choria
