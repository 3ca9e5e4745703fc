// Package corpus applies manifests to a hub and to a control cluster, and reports in what they differ.
//
// Contract:
//
//   - The control is a cluster of the lab that is no member of the hub. Its answers are the measure.
//   - Manifests take turns. A turn ends with the removal of everything that the manifest left in its
//     own namespaces, and of its own objects. Nothing else is deleted.
//   - Every wait is bounded, and so are the number and the sizes of files and of the answers of
//     clusters and programs. Texts of clusters are escaped before they are printed.
//   - Files are written below the lab's directory, and in temporary directories that the command
//     removes. No process outlives the command, except for those of a lab that ran before.
package corpus
