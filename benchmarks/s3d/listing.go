package main

import (
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
	"sort"
	"strconv"
	"strings"
)

var slashes = strings.NewReplacer("%2F", "/", "+", "%20")

// Whether a listing that is encoded as a URL writes a character otherwise.
func special(letter rune) bool {
	return !(letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9' ||
		letter == '/' || letter == '-' || letter == '_' || letter == '.' || letter == '~')
}

func (served *site) listing(query url.Values) string {
	if served.made != nil {
		return served.made.list(served.bucket, query)
	}
	return served.list(query)
}

func (served *site) list(query url.Values) string {
	if query.Has("location") {
		return "<LocationConstraint/>"
	}
	prefix, delimiter := query.Get("prefix"), query.Get("delimiter")
	after := query.Get("start-after")
	if token := query.Get("continuation-token"); token != "" {
		raw, _ := base64.URLEncoding.DecodeString(token)
		after = string(raw)
	} else if marker := query.Get("marker"); marker != "" {
		after = marker
	}
	most := 1000
	if asked, err := strconv.Atoi(query.Get("max-keys")); err == nil && asked < most {
		most = asked
	}
	code := html.EscapeString
	if query.Get("encoding-type") == "url" {
		code = func(key string) string {
			if !strings.ContainsFunc(key, special) {
				return key
			}
			return slashes.Replace(url.QueryEscape(key))
		}
	}
	all := served.objects
	at := sort.Search(len(all), func(at int) bool {
		key := all[at].key
		return key >= prefix && key > after && !(delimiter != "" && strings.HasSuffix(after, delimiter) && strings.HasPrefix(key, after))
	})
	var out strings.Builder
	out.Grow(256 * most)
	count, last := 0, ""
	for at < len(all) && count < most && strings.HasPrefix(all[at].key, prefix) {
		found := &all[at]
		count++
		if delimiter != "" {
			if cut := strings.Index(found.key[len(prefix):], delimiter); cut >= 0 {
				last = found.key[:len(prefix)+cut+len(delimiter)]
				fmt.Fprintf(&out, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", code(last))
				for at < len(all) && strings.HasPrefix(all[at].key, last) {
					at++
				}
				continue
			}
		}
		last = found.key
		at++
		out.WriteString("<Contents><Key>")
		out.WriteString(code(found.key))
		out.WriteString(found.listed)
	}
	more := at < len(all) && strings.HasPrefix(all[at].key, prefix)
	var head strings.Builder
	fmt.Fprintf(&head, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%s</Name><Prefix>%s</Prefix><KeyCount>%d</KeyCount><MaxKeys>%d</MaxKeys><IsTruncated>%t</IsTruncated>",
		served.bucket, code(prefix), count, most, more)
	if query.Get("encoding-type") == "url" {
		head.WriteString("<EncodingType>url</EncodingType>")
	}
	if more {
		fmt.Fprintf(&head, "<NextContinuationToken>%s</NextContinuationToken><NextMarker>%s</NextMarker>",
			base64.URLEncoding.EncodeToString([]byte(last)), code(last))
	}
	return head.String() + out.String() + "</ListBucketResult>"
}
