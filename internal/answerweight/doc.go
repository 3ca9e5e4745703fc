// Package answerweight weighs answers of API servers before they are decoded: it returns about how
// many bytes of memory the decoded value takes.
//
// Contract: an answer of a few bytes can be an object of a thousand bytes a million times. The
// weight is found without decoding, and takes no memory that grows with the answer. A weight is
// within a factor of the memory that the decoder uses; tests hold the factor. WeighMessage may be
// called concurrently. A JSONScanner has one user at a time.
package answerweight

import "errors"

// ErrTooHeavy is returned for an answer that would take more memory than it may.
var ErrTooHeavy = errors.New("it would take more memory than an answer may")
