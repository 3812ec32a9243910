package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// service is the real service in a process of its own, with one data directory and one
// address over several processes.
type service struct {
	*child
	bench *bench
	setup setup
}

// start runs the service on an empty directory.
func (b *bench) start(s setup) (*service, error) {
	var err error
	if s.Dir, err = os.MkdirTemp(b.dir, "service-"); err != nil {
		return nil, err
	}
	if s.Listen, err = freeAddr(); err != nil {
		return nil, err
	}
	svc := &service{bench: b, setup: s}
	if _, err := svc.again(); err != nil {
		return nil, err
	}
	return svc, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// again starts a process, and returns how long it took until it was ready.
func (s *service) again() (time.Duration, error) {
	begin := time.Now()
	var err error
	if s.child, err = s.bench.spawn(roleService, s.setup); err != nil {
		return 0, err
	}
	for {
		resp, err := http.Get(s.addr + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(begin), nil
			}
		}
		if s.bench.ctx.Err() != nil || time.Since(begin) > 10*time.Minute {
			return 0, errors.Join(errors.New("the service did not become ready"), err)
		}
		sleep(s.bench.ctx, 2*time.Millisecond)
	}
}

// close ends the process. Its data goes with the bench's directory, or now, to make room.
func (s *service) close() {
	end := s.stop // writes the profile
	if s.bench.profile == "" {
		end = s.kill
	}
	if err := errors.Join(end(), os.RemoveAll(s.setup.Dir)); err != nil {
		s.bench.say("the end of a service: %v", err)
	}
}

// host is the API's "host:port".
func (s *service) host() string { return strings.TrimPrefix(s.addr, "http://") }

// subscribe makes one tenant for each URL, named prefix and a number, with one
// subscription with the extra fields.
func (s *service) subscribe(prefix string, urls []string, extra map[string]any) (tenants []string, err error) {
	for i, url := range urls {
		tenant := fmt.Sprintf("%s%d", prefix, i)
		if err := s.tenant(tenant, []string{url}, extra); err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	return tenants, nil
}

// tenant makes a tenant with a subscription for each URL.
func (s *service) tenant(id string, urls []string, extra map[string]any) error {
	if err := s.call(http.MethodPut, "/v1/tenants/"+id, map[string]any{}, nil); err != nil {
		return err
	}
	for _, url := range urls {
		sub := map[string]any{"tenant": id, "url": url, "topics": []string{"bench.event"}}
		for k, v := range extra {
			sub[k] = v
		}
		if err := s.call(http.MethodPost, "/v1/subscriptions", sub, nil); err != nil {
			return err
		}
	}
	return nil
}

// account is the platform's.
type account struct {
	Offered, Delivered, Parked, Dead uint64
	InFlight                         uint64 `json:"in_flight"`
	Balanced                         bool
}

func (s *service) account() (a account, err error) {
	return a, s.call(http.MethodGet, "/v1/account?limit=1", nil, &a)
}

// call sends a request of the API and reads the answer into out, unless that is nil.
func (s *service) call(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(s.bench.ctx, method, s.addr+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// size is the bytes of the files below dir.
func size(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
