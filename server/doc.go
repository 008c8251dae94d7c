// Package server is the agent on a node. It decides whether the node has to be provisioned, enrolls it with the token
// on its image, and puts certificate and configuration on disk, all or nothing. Then it stays connected to the fleet
// by mutual TLS, reports that the node is alive and takes commands.
//
// A [Server] runs one mode after the other: an enroller runs provisioning mode, a member normal mode. Both share an
// agent, with the state that decides the mode, the sets of files, the clock, accepted commands (package orders),
// connections (package link) and logged problems.
//
// # Trust
//
// Only the provisioner verifies the token. The node takes brokers and the expected authority from it, and accepts only
// what this authority signed (package trust). Without a pin and without sealing, it is only as secure as Choria.
//
// The private key is created here with mode 0600 and never leaves the node.
//
// # Files
//
// All files of a set change by one rename(2): see package files. Beside the sets are .lock, which excludes a second
// agent, .clock, the latest time saved, and .orders, the accepted commands.
package server
