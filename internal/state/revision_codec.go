package state

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"

	"atoll.dev/atoll/internal/atoll"
)

// Content up to maxInlineBytes (JSON, before compression) lies in the Revision itself;
// beyond that its items lie in parts of about targetPartBytes each. maxPartBytes is the most
// that a part may have when compressed, and maxRuleBytes what the Revision may have besides
// items: it is stored with a third more than that, and etcd takes 1.5 MB by default.
const (
	maxInlineBytes  = 256_000
	targetPartBytes = 512_000
	maxPartBytes    = 1_000_000
	maxRuleBytes    = 800_000
	maxPartCount    = 1 << 16
)

// contentPart of a content: items of Secrets and others never share one.
type contentPart struct {
	secret bool
	data   []byte
}

// encodeContent splits content into what lies in the Revision and its parts. An
// item's part follows from its key alone (and from the number of parts, a power of
// two of the size), so that a change rewrites one part. The error names the item
// that is too large to store. Parts of assessments lie in the Revision.
func encodeContent(content *atoll.Content) (inline []byte, parts []contentPart, err error) {
	c := content.WithListedAssessments()
	var open, secret []atoll.Item
	for _, it := range c.Items {
		if it.Key.Group == "" && it.Key.Kind == "Secret" {
			secret = append(secret, it)
		} else {
			open = append(open, it)
		}
	}
	bare := c
	bare.Items = open
	if estimateItemsSize(open) > maxInlineBytes {
		bare.Items = nil
		if parts, err = splitIntoParts(open, false); err != nil {
			return nil, nil, err
		}
	}
	hidden, err := splitIntoParts(secret, true)
	if err != nil {
		return nil, nil, err
	}
	inline, err = encodeGzipJSON(bare, fastCompressionBytes)
	return inline, append(parts, hidden...), err
}

// CheckItemSize reports whether an item can be stored at all; the error has its size and the
// limit. A small item is not compressed for the check.
func CheckItemSize(it *atoll.Item) error {
	if len(it.Object) < maxPartBytes/2 {
		return nil
	}
	data, err := encodeGzipJSON([]atoll.Item{*it}, 0)
	if err != nil || len(data) <= maxPartBytes {
		return err
	}
	return itemTooLargeError(it, len(data))
}

// CheckSizeWithoutItems reports whether what a content has besides items can be stored, all of
// which lies in the Revision itself.
func CheckSizeWithoutItems(c *atoll.Content) error {
	bare := c.WithListedAssessments()
	bare.Items = nil
	raw, err := json.Marshal(bare)
	if err != nil || len(raw) <= maxRuleBytes {
		return err
	}
	data, err := encodeGzipJSON(bare, fastCompressionBytes)
	if err != nil || len(data) <= maxRuleBytes {
		return err
	}
	return fmt.Errorf("the override rules of all its objects together (%d), with what interpreters return for them (%d), the lists of rules that assess them (%d) and what is still to be removed (%d), are too large to be sent: %d bytes, %d when compressed, and %d are allowed; make them smaller, or divide the objects over several policies",
		len(c.Rules), len(c.Interpreters), len(bare.AssessmentParts), len(c.Tombstones), len(raw), len(data), maxRuleBytes)
}

func itemTooLargeError(it *atoll.Item, compressed int) error {
	return fmt.Errorf("%s %s is too large to be sent: %d bytes, %d when compressed, and %d are allowed; make it smaller, or divide it", it.Key.Kind, it.Key.Name, len(it.Object), compressed, maxPartBytes)
}

func estimateItemsSize(items []atoll.Item) (n int) {
	for _, it := range items {
		n += len(it.Object) + 256
	}
	return n
}

func splitIntoParts(items []atoll.Item, secret bool) ([]contentPart, error) {
	if len(items) == 0 {
		return nil, nil
	}
	n := 1
	for n*targetPartBytes < estimateItemsSize(items) {
		n *= 2
	}
	for {
		parts, crowded, err := splitIntoBuckets(items, secret, n)
		if err != nil || !crowded {
			return parts, err
		}
		n *= 2 // large items share a part that is too small for them
	}
}

// splitIntoBuckets splits into so many parts; crowded when several items do not fit into the part that
// their keys put them in.
func splitIntoBuckets(items []atoll.Item, secret bool, n int) (parts []contentPart, crowded bool, err error) {
	buckets := make([][]atoll.Item, n)
	for _, it := range items {
		h := fnv.New32a()
		h.Write([]byte(it.Key.String()))
		i := int(h.Sum32()) % n
		buckets[i] = append(buckets[i], it)
	}
	for _, b := range buckets {
		if len(b) == 0 {
			continue
		}
		data, err := encodeGzipJSON(b, 0)
		if err != nil {
			return nil, false, err
		}
		if len(data) > maxPartBytes {
			if len(b) > 1 && n < maxPartCount {
				return nil, true, nil
			}
			largest := slices.MaxFunc(b, func(x, y atoll.Item) int { return len(x.Object) - len(y.Object) })
			return nil, false, itemTooLargeError(&largest, len(data))
		}
		parts = append(parts, contentPart{secret: secret, data: data})
	}
	return parts, false, nil
}

func decodeContent(inline []byte, parts [][]byte) (*atoll.Content, error) {
	var c atoll.Content
	if err := decodeGzipJSON(inline, &c); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	for i, p := range parts {
		var items []atoll.Item
		if err := decodeGzipJSON(p, &items); err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		c.Items = append(c.Items, items...)
	}
	if err := c.ResolveAssessments(); err != nil {
		return nil, err
	}
	slices.SortFunc(c.Items, func(a, b atoll.Item) int { return a.Key.Compare(b.Key) })
	return &c, nil
}

// fastCompressionBytes is up to how many bytes a content is compressed the quick way: making
// ready to compress well takes longer than to compress that little, and saves a tenth of it.
// Parts never are: they are named by their bytes, so that equal parts are written once.
const fastCompressionBytes = 32_000

// packers are kept: each is most of a megabyte, and most contents a few kilobytes.
var (
	gzipWriters     = newGzipWriterPool(gzip.DefaultCompression)
	fastGzipWriters = newGzipWriterPool(gzip.BestSpeed)
)

func newGzipWriterPool(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(nil, level)
		if err != nil {
			panic(fmt.Sprintf("state: gzip has the level: %v", err))
		}
		return w
	}}
}

// encodeGzipJSON encodes a value, one of up to so many bytes quickly.
func encodeGzipJSON(v any, quick int) ([]byte, error) {
	var raw bytes.Buffer
	if err := json.NewEncoder(&raw).Encode(v); err != nil {
		return nil, err
	}
	pool := gzipWriters
	if raw.Len() <= quick {
		pool = fastGzipWriters
	}
	w := pool.Get().(*gzip.Writer)
	defer pool.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	if _, err := w.Write(raw.Bytes()); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decodeGzipJSON(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}
