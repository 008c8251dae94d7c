# Refuses nodes with a copied key.
#
# muster reports two running machines that use one key. A provisioner cannot
# tell the original from the copy, so this policy refuses both until an operator
# has removed the copy and retired the identity.
package muster.enroll

deny contains "two live machines use the key of this machine" if input.node.cloned
