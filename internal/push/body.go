package push

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/internal/answerweight"
)

// limitedResponseBody is the body of an answer, of which no more is read than has been weighed. One goroutine
// reads it; another one may close it.
type limitedResponseBody struct {
	ctx   context.Context
	from  io.ReadCloser
	limit *memberResponseLimit
	form  form
	next  source

	piece  []byte // that is not read yet
	err    error  // after the piece
	bytes  int    // that were read of it
	weight int    // of the bytes
	large  bool   // it holds the place of the large answer
	keeps  keeps
	path   string // of the list, of a page

	// limit.mu guards these.
	kept      int // of the limit's, until it is closed
	shared    int // of the budget's, until it is closed, without what is kept
	isRefused bool
	closed    bool
}

// source returns the next piece of an answer, for which it may use the given bytes. The piece is
// valid until the next call.
type source func(into []byte) ([]byte, error)

// Read reads the next weighed bytes.
func (b *limitedResponseBody) Read(p []byte) (int, error) {
	for len(b.piece) == 0 && len(p) > 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.piece, b.err = b.next(p)
	}
	n := copy(p, b.piece)
	b.piece = b.piece[n:]
	return n, nil
}

// Close ends the answer.
func (b *limitedResponseBody) Close() error {
	if b.large {
		b.large = false
		<-b.limit.large
	}
	b.limit.releaseAllOfBody(b)
	return b.from.Close()
}

func endOfBody([]byte) ([]byte, error) { return nil, io.EOF }

// chargeWeight counts memory that the answer takes. It waits while the member has sent too much.
func (b *limitedResponseBody) chargeWeight(weight int, stream bool) error {
	b.weight += weight
	if err := b.reserveKeptWeight(weight); err != nil {
		return err
	}
	if !stream && b.weight <= unpaced {
		return nil
	}
	if !stream {
		if err := b.limit.reserveSharedBudget(b, weight); err != nil {
			return err
		}
	}
	return b.limit.rate.WaitTokens(b.ctx, (weight+weightUnit-1)/weightUnit)
}

// waitForLargeResponseSlot waits for the place of the large answer.
func (b *limitedResponseBody) waitForLargeResponseSlot() error {
	if b.large {
		return nil
	}
	select {
	case b.limit.large <- struct{}{}:
		b.large = true
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// readWhole returns all of an answer in protobuf, which can be weighed as a whole only.
func (b *limitedResponseBody) readWhole([]byte) ([]byte, error) {
	b.next = endOfBody
	text, err := io.ReadAll(io.LimitReader(b.from, largeAnswer))
	if err != nil {
		return nil, err
	}
	if len(text) == largeAnswer {
		if err := b.waitForLargeResponseSlot(); err != nil {
			return nil, err
		}
		if text, err = b.readRest(text); err != nil {
			return nil, err
		}
	}
	weight, err := weighObject(text, decodedMost)
	if err != nil {
		return nil, newLimitError(err)
	}
	return text, b.chargeWeight(weight, false)
}

// readRest reads the rest of a large answer in parts, each of which is counted before the next one
// is read.
func (b *limitedResponseBody) readRest(text []byte) ([]byte, error) {
	for {
		part, err := io.ReadAll(io.LimitReader(b.from, largeAnswer))
		if err != nil {
			return nil, err
		}
		if err := b.limit.reserveSharedBudget(b, len(part)); err != nil {
			return nil, err
		}
		if text = append(text, part...); len(text) > answerMost {
			return nil, newLimitError(fmt.Errorf("an answer has more than %d MiB", answerMost>>20))
		}
		if len(part) < largeAnswer {
			return text, nil
		}
	}
}

// nextWatchFrame returns the next event of a watch in protobuf, with its length before it.
func (b *limitedResponseBody) nextWatchFrame([]byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(b.from, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > eventMost {
		return nil, errFrame
	}
	frame := make([]byte, 4+n)
	copy(frame, length[:])
	if _, err := io.ReadFull(b.from, frame[4:]); err != nil {
		return nil, err
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame[4:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	weight, err := weighObject(event.Object.Raw, eventDecodedMost)
	if err != nil {
		return nil, newLimitError(err)
	}
	if err := b.chargeWeight(weight+eventLeast, true); err != nil {
		return nil, err
	}
	if event.Type == string(watch.Bookmark) { // API servers send none before the end of the list
		b.endInitialEvents()
	}
	return frame, nil
}

// protobufMark is before every object that is written as protobuf.
const protobufMark = "k8s\x00"

// weighable has every kind that an agent decodes as protobuf.
var weighable = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	utilruntime.Must(metav1beta1.AddMetaToScheme(s))
	utilruntime.Must(metricsv1.AddToScheme(s))
	return s
}()

// weighObject returns the memory that an object in protobuf takes when it is decoded. Bytes that are
// no such object take none: no decoder takes them. Kinds that the agent does not decode are refused.
func weighObject(data []byte, most int) (int, error) {
	if len(data) < len(protobufMark) || string(data[:len(protobufMark)]) != protobufMark {
		return len(data), nil
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(data[len(protobufMark):]); err != nil {
		return 0, fmt.Errorf("it is no object: %w", err)
	}
	empty, err := weighable.New(schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind))
	if err != nil {
		return 0, fmt.Errorf("it is of a kind that is not decoded: %.200s", err)
	}
	left := most
	if err := answerweight.WeighMessage(reflect.TypeOf(empty).Elem(), envelope.Raw, &left); err != nil {
		return 0, err
	}
	return len(data) + most - left, nil
}
