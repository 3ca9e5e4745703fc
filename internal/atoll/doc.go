// Package atoll is the vocabulary that every other package speaks: keys, items, content, rows,
// manifests, reasons and the names of labels and annotations.
//
// Contract: values and pure functions only. The package has no I/O, no goroutine and no logger,
// and imports only the API types of Atoll. All values may be shared between goroutines as long
// as none of them changes a value.
package atoll
