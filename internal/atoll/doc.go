// Package atoll is the vocabulary that every other package speaks: keys, items,
// content, rows, phases, reasons and the names of labels and annotations.
//
// Contract: values and pure functions only; nothing here talks, waits, logs or
// imports another package of Atoll's except the API types. All values may be
// shared between goroutines as long as nobody changes them.
package atoll
