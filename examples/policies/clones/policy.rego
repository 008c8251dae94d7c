# Nobody with a copied key.
#
# Two live machines that use one key are found by muster and always reported.
# This gives neither another certificate until an operator has found the copy and
# retired the identity: nobody can tell which of them is the honest one.
package muster.enroll

deny contains "two live machines use the key of this machine" if input.node.cloned
