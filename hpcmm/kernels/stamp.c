const char source_sha256[] = SOURCE_SHA256;
