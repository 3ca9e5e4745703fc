package etcd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// partStream sends parts and ends.
type partStream struct {
	grpc.ClientStream
	parts []*pb.SnapshotResponse
}

func (s *partStream) Recv() (*pb.SnapshotResponse, error) {
	if len(s.parts) == 0 {
		return nil, io.EOF
	}
	next := s.parts[0]
	s.parts = s.parts[1:]
	return next, nil
}

func TestSnapshotHasTheAnnouncedSize(t *testing.T) {
	checksum := &pb.SnapshotResponse{Blob: bytes.Repeat([]byte("c"), sha256.Size)}
	first := &pb.SnapshotResponse{Blob: []byte("first"), RemainingBytes: 6}
	second := &pb.SnapshotResponse{Blob: []byte("second")}
	for name, c := range map[string]struct {
		parts []*pb.SnapshotResponse
		want  string
	}{
		"whole":           {[]*pb.SnapshotResponse{first, second, checksum}, ""},
		"nothing":         {nil, "EOF"},
		"cut short":       {[]*pb.SnapshotResponse{first, second}, "after 11 of 43 bytes"},
		"a part left out": {[]*pb.SnapshotResponse{first, checksum}, "after 37 of 43 bytes"},
		"a part twice":    {[]*pb.SnapshotResponse{first, second, second, checksum}, "after 49 of 43 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			announced := int64(0)
			err := copySnapshot(&partStream{parts: c.parts}, func(size int64) (io.Writer, error) {
				announced = size
				return &out, nil
			})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("want %q, got %v", c.want, err)
				}
				return
			}
			if err != nil || announced != int64(out.Len()) || out.String() != "firstsecond"+string(checksum.Blob) {
				t.Errorf("announced %d bytes, got %q: %v", announced, out.String(), err)
			}
		})
	}
}

func TestSnapshotEndsWhereItsWriterFails(t *testing.T) {
	full := errors.New("the disk is full")
	s := &partStream{parts: []*pb.SnapshotResponse{{Blob: []byte("first")}}}
	if err := copySnapshot(s, func(int64) (io.Writer, error) { return nil, full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}
