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

// Content up to inlineLimit (JSON, before compression) lies in the Revision itself;
// beyond that its items lie in parts of about partTarget each. partLimit is the most
// that a part may have when compressed, and ruleLimit what the Revision may have besides
// items: it is stored with a third more than that, and etcd takes 1.5 MB by default.
const (
	inlineLimit = 256_000
	partTarget  = 512_000
	partLimit   = 1_000_000
	ruleLimit   = 800_000
	maxParts    = 1 << 16
)

// part of a content: items of Secrets and others never share one.
type part struct {
	secret bool
	data   []byte
}

// encodeContent splits content into what lies in the Revision and its parts. An
// item's part follows from its key alone (and from the number of parts, a power of
// two of the size), so that a change rewrites one part. The error names the item
// that is too large to store.
func encodeContent(c *atoll.Content) (inline []byte, parts []part, err error) {
	var open, secret []atoll.Item
	for _, it := range c.Items {
		if it.Key.Group == "" && it.Key.Kind == "Secret" {
			secret = append(secret, it)
		} else {
			open = append(open, it)
		}
	}
	bare := *c
	bare.Items = open
	if size(open) > inlineLimit {
		bare.Items = nil
		if parts, err = split(open, false); err != nil {
			return nil, nil, err
		}
	}
	hidden, err := split(secret, true)
	if err != nil {
		return nil, nil, err
	}
	inline, err = pack(bare, quickly)
	return inline, append(parts, hidden...), err
}

// Storable tells whether an item can be stored at all; the error says how large it is
// and how large it may be. What is small is not compressed to find out.
func Storable(it *atoll.Item) error {
	if len(it.Object) < partLimit/2 {
		return nil
	}
	data, err := pack([]atoll.Item{*it}, 0)
	if err != nil || len(data) <= partLimit {
		return err
	}
	return tooLarge(it, len(data))
}

// StorableRules tells whether what a content has besides items can be stored, all of
// which lies in the Revision itself.
func StorableRules(c *atoll.Content) error {
	bare := *c
	bare.Items = nil
	raw, err := json.Marshal(bare)
	if err != nil || len(raw) <= ruleLimit {
		return err
	}
	data, err := pack(bare, quickly)
	if err != nil || len(data) <= ruleLimit {
		return err
	}
	return fmt.Errorf("the override rules of all its objects together (%d), with what interpreters say of them (%d) and what is still to be removed (%d), are too large to be sent: %d bytes, %d when compressed, and %d are allowed; make them smaller, or divide the objects over several policies",
		len(c.Rules), len(c.Interpreters), len(c.Tombstones), len(raw), len(data), ruleLimit)
}

func tooLarge(it *atoll.Item, compressed int) error {
	return fmt.Errorf("%s %s is too large to be sent: %d bytes, %d when compressed, and %d are allowed; make it smaller, or divide it", it.Key.Kind, it.Key.Name, len(it.Object), compressed, partLimit)
}

func size(items []atoll.Item) (n int) {
	for _, it := range items {
		n += len(it.Object) + 256
	}
	return n
}

func split(items []atoll.Item, secret bool) ([]part, error) {
	if len(items) == 0 {
		return nil, nil
	}
	n := 1
	for n*partTarget < size(items) {
		n *= 2
	}
	for {
		parts, crowded, err := splitInto(items, secret, n)
		if err != nil || !crowded {
			return parts, err
		}
		n *= 2 // large items share a part that is too small for them
	}
}

// splitInto so many parts; crowded when several items do not fit into the part that
// their keys put them in.
func splitInto(items []atoll.Item, secret bool, n int) (parts []part, crowded bool, err error) {
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
		data, err := pack(b, 0)
		if err != nil {
			return nil, false, err
		}
		if len(data) > partLimit {
			if len(b) > 1 && n < maxParts {
				return nil, true, nil
			}
			largest := slices.MaxFunc(b, func(x, y atoll.Item) int { return len(x.Object) - len(y.Object) })
			return nil, false, tooLarge(&largest, len(data))
		}
		parts = append(parts, part{secret: secret, data: data})
	}
	return parts, false, nil
}

func decodeContent(inline []byte, parts [][]byte) (*atoll.Content, error) {
	var c atoll.Content
	if err := unpack(inline, &c); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	for i, p := range parts {
		var items []atoll.Item
		if err := unpack(p, &items); err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		c.Items = append(c.Items, items...)
	}
	slices.SortFunc(c.Items, func(a, b atoll.Item) int { return a.Key.Compare(b.Key) })
	return &c, nil
}

// quickly is up to how many bytes a content is compressed the quick way: making ready to
// compress well takes longer than to compress that little, and saves a tenth of it. Parts
// never are: they are named by their bytes, and the same ones are not to be written anew.
const quickly = 32_000

// packers are kept: each is most of a megabyte, and most contents a few kilobytes.
var (
	packers      = packersOf(gzip.DefaultCompression)
	quickPackers = packersOf(gzip.BestSpeed)
)

func packersOf(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(nil, level)
		if err != nil {
			panic(fmt.Sprintf("state: gzip has the level: %v", err))
		}
		return w
	}}
}

// pack a value, one of up to so many bytes quickly.
func pack(v any, quick int) ([]byte, error) {
	var raw bytes.Buffer
	if err := json.NewEncoder(&raw).Encode(v); err != nil {
		return nil, err
	}
	pool := packers
	if raw.Len() <= quick {
		pool = quickPackers
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

func unpack(data []byte, v any) error {
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
