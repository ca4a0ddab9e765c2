//! The settings every provider has, written once.

/// Gives a model with a `client` the settings of that client.
macro_rules! settings {
    ($model:ident) => {
        impl $model {
            /// Where its server is, up to and with `/v1`; with or without a slash at the end.
            #[must_use]
            pub fn base_url(mut self, url: impl AsRef<str>) -> Self {
                self.client.base_url = url.as_ref().to_owned();
                self.client.forget();
                self
            }

            /// Who we are there. A server of one's own may want nothing.
            #[must_use]
            pub fn key(mut self, key: Secret) -> Self {
                self.client.key = Some(key);
                self
            }

            /// How long one try may take: ten minutes where nothing is said.
            #[must_use]
            pub fn request_timeout(mut self, time: Duration) -> Self {
                self.client.request_timeout = time;
                self
            }

            /// How long a connection may take to be made: ten seconds where nothing is said.
            #[must_use]
            pub fn connect_timeout(mut self, time: Duration) -> Self {
                self.client.connect_timeout = time;
                self.client.forget();
                self
            }

            /// How long a streamed answer may pause in the middle: two minutes where nothing is said.
            #[must_use]
            pub fn idle_timeout(mut self, time: Duration) -> Self {
                self.client.idle_timeout = time;
                self
            }

            /// How often a question that may do better later is asked again: four times where nothing is said.
            #[must_use]
            pub fn retries(mut self, retries: u32) -> Self {
                self.client.retries = retries;
                self
            }

            /// How long to wait before the first of these, where the server does not say: half a second. It doubles each time.
            #[must_use]
            pub fn first_wait(mut self, wait: Duration) -> Self {
                self.client.first_wait = wait;
                self
            }

            /// Whether questions can be sent at all. Nobody is asked anything.
            ///
            /// # Errors
            /// When the address or the key cannot be used.
            pub fn check(&self) -> Result<(), SettingsError> {
                exchange::check(self, &self.client)
            }
        }
    };
}

pub(super) use settings;
